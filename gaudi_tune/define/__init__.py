"""What a user defines (experiment, search space, objective, budget, options), and the plan that is made of it.

These modules import nothing from ``plan``, ``sweep`` or ``on_ray``. ``sweep_plan.py`` only describes a plan; the folder
``plan`` makes it. A field added to ``options.py`` is an option of every script and an argument of ``build_tuner()``.
"""
