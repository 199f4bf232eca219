"""The models: a module for each recipe, and the modules that only they need. What they share with others is in
:mod:`gaudi_tune`.
"""
