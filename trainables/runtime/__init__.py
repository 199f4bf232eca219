"""What every train loop uses, whether it runs in a warm worker group, in a plain TorchTrainer or in this process.

A loop written for Ray Train changes one import, ``from ray import train`` to ``from trainables import runtime as
train``, and runs in a warm group: :func:`report`, :func:`get_checkpoint` and :func:`get_context` mean what they mean
there.
"""

from trainables.runtime.session import SaveFunction, get_checkpoint, get_context, report
from trainables.runtime.trial_config import TrialConfig

__all__ = ["SaveFunction", "TrialConfig", "get_checkpoint", "get_context", "report"]
