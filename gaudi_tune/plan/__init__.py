"""Planning a sweep: what it will do, and whether it can. Nothing here starts a worker or uses a device.

``planner`` makes the plan (``define/sweep_plan.py``). It calls the other modules in this order: ``earlier`` reads what
earlier sweeps have on disk, ``places`` checks that the sweep can be written and tracked, ``connect`` finds the devices,
``apply`` applies the options to the experiment, ``decide_plan`` decides all else, ``earlier`` adds what the earlier
sweeps know, and ``check`` tries the train loop, the data and the model.
"""
