"""What every train loop uses, whether it runs in a warm worker group, in a plain TorchTrainer or in this process.

A loop written for Ray Train runs in a warm group as it is. With :func:`report`, :func:`get_checkpoint` and
:func:`get_context` in the place of Ray Train's, it also runs without Ray, and writes a checkpoint only when one is
wanted.
"""

from trainables.runtime.session import SaveFunction, get_checkpoint, get_context, report
from trainables.runtime.trial_config import TrialConfig

__all__ = ["SaveFunction", "TrialConfig", "get_checkpoint", "get_context", "report"]
