"""The model that a trial of a language model trains: a frozen base, which stays on the device, with a LoRA adapter."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaudi_tune.devices.find import DEVICE_TYPES, worker_device
from gaudi_tune.training.keep import keep
from gaudi_tune.training.session import get_context
from trainables.attention import choose_attention
from trainables.llm_config import LlmConfig

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from torch import nn
    from transformers import PreTrainedModel


def with_adapter(config: LlmConfig) -> PeftModel:
    """Return the base model, which stays on the device, with a new adapter."""
    from peft import LoraConfig, get_peft_model

    from gaudi_tune.training.fresh_start import seed_everything

    device = worker_device()
    mixes = {"auto": DEVICE_TYPES[device.type].bf16, "bf16": True, "off": False}[config.mixed_precision]
    source = (config.model, "bf16" if mixes else "fp32", config.packing)
    if config.sharding == "full":  # the whole base never comes onto the device, and nothing of it stays
        base = load_base(*source, "cpu")
    else:
        base = keep("base model", partial(load_base, *source, device), made_of=(*source, device))
    if config.gradient_checkpointing:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    seed_everything(config.seed)  # whether or not the base was loaded, which may draw numbers
    adapter = LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha_ratio * config.rank,  # peft divides it by the rank
        lora_dropout=config.dropout,
        target_modules=layers_to_adapt(base, config.target),
        task_type="CAUSAL_LM",
    )
    model: PeftModel = get_peft_model(base, adapter)
    choose_attention(model, config)  # also the adapter's dropout, where graphs are compiled
    return model


def load_base(model: str, dtype: str, packing: bool, device: torch.device | str) -> PreTrainedModel:
    """Return the frozen base model on the device, in ``"bf16"`` or ``"fp32"``; for ``packing``, after a check of it."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    precision = torch.bfloat16 if dtype == "bf16" else torch.float32
    base: PreTrainedModel = AutoModelForCausalLM.from_pretrained(model, torch_dtype=precision)
    base.config.use_cache = False
    base.requires_grad_(False).to(device)
    if packing:
        check_packing(base)
    return base


def check_packing(base: PreTrainedModel) -> None:
    """Check that a text does not see the one before it in its sample. It does where a model keeps a state from token to
    token (Mamba), or does not use the positions that it is given (OPT).

    Raises:
        ValueError: It does.
    """
    import torch

    texts = torch.arange(5, 29, device=base.device).view(3, 8)
    samples = torch.stack([texts[[0, 2]].flatten(), texts[[1, 2]].flatten()])
    positions = torch.arange(8, device=base.device).repeat(2, 2)
    with torch.no_grad():
        logits = base(input_ids=samples, position_ids=positions, use_cache=False).logits[:, 8:].float()
    if float((logits[0] - logits[1]).abs().max()) > 1e-3 * float(logits.abs().max()):
        raise ValueError(
            f"packing=true: in a model of the type {base.config.model_type}, conversations of a sample see each other; "
            f"take --set packing=false"
        )


def layers_to_adapt(base: nn.Module, target: str) -> list[str] | str:
    """Return the names of the linear layers that get an adapter, as peft takes them."""
    if target == "all":
        return "all-linear"
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    head = base.get_output_embeddings()  # type: ignore[operator]
    linear = {
        name for name, module in base.named_modules() if isinstance(module, nn.Linear | Conv1D) and module is not head
    }
    of_attention = {name for name in linear if "attn" in name or "attention" in name}
    # With the part's name before it: GPT-2 has a c_proj in its attention and another in its MLP.
    wanted = {
        ".".join(name.split(".")[-2:]) for name in (of_attention if target == "attention" else linear - of_attention)
    }
    if not wanted:
        raise ValueError(f"target={target}: the model has no such linear layer; take target=all")
    return sorted(wanted)


def write_adapter(model: PeftModel, tokenizer: Path, sharding: str, directory: Path) -> None:
    """Write the adapter, as peft reads it, and the tokenizer; of a sharded model on rank 0, for which all gather it."""
    from gaudi_tune.recipes.sharding import trained_weights

    weights = trained_weights(model) if sharding == "full" else None
    if get_context().get_world_rank() != 0:
        return
    model.save_pretrained(str(directory), save_embedding_layers=False, state_dict=weights)
    (directory / "README.md").unlink(missing_ok=True)  # an empty model card
    shutil.copytree(tokenizer, directory, dirs_exist_ok=True)


def read_adapter(model: PeftModel, directory: Path) -> None:
    """Read the adapter that :func:`write_adapter` has written.

    Raises:
        ValueError: It has another shape.
    """
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    weights = load_file(directory / "adapter_model.safetensors")
    if (mesh := getattr(next(model.parameters()), "device_mesh", None)) is not None:
        from torch.distributed.tensor import Shard, distribute_tensor

        parts = partial(distribute_tensor, device_mesh=mesh, placements=[Shard(0)], src_data_rank=None)
        weights = {name: parts(weight) for name, weight in weights.items()}
    try:
        loaded: Any = set_peft_model_state_dict(model, weights)
    except RuntimeError as error:
        raise ValueError(f"the adapter in {directory} has another rank or other layers") from error
    if loaded.unexpected_keys:
        raise ValueError(f"the adapter in {directory} has layers that this one lacks")
