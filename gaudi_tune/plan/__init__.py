"""Before a worker starts: what the sweep will do, and whether it can. No file below touches a device.

In this order: ``earlier`` reads what earlier sweeps have on disk, ``places`` sees that the sweep can be written and
tracked, ``connect`` finds the devices, ``apply`` makes the experiment what the options want, ``decide`` makes the plan
of it, ``earlier`` adds what the earlier sweeps know, and ``check`` tries the train loop, the data and the model.
``plan`` calls them, and nobody else does.
"""
