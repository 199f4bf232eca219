"""``python -m experiments.doctor``: check that this machine has everything that a sweep on Gaudi needs."""

from trainables.runtime.devices.doctor import main

if __name__ == "__main__":
    main()
