"""What the plan says of a language model's memory is what torch keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from gaudi_tune.define.options import PROJECT_ROOT
from trainables import llm_adapter
from trainables.llm_memory import memory_need

MODELS = {
    "Qwen2.5 0.5B": (896, 24, 4864, 151936, 14, 2, True),
    "Llama 3.2 1B": (2048, 16, 8192, 128256, 32, 8, True),
    "Llama 3.2 3B": (3072, 28, 8192, 128256, 24, 8, True),
    "Llama 3.1 8B": (4096, 32, 14336, 128256, 32, 8, False),
}
"""Width, layers, width of the MLPs, vocabulary, heads, heads of keys and values, and whether the head is the embedding,
as in the models' ``config.json``."""


@pytest.mark.parametrize("name", MODELS)
def test_the_table_of_the_documentation_is_what_the_plan_says(name: str) -> None:
    width, layers, inner, vocabulary, heads, keys, tied = MODELS[name]
    model = {
        "hidden_size": width, "num_hidden_layers": layers, "intermediate_size": inner, "vocab_size": vocabulary,
        "num_attention_heads": heads, "num_key_value_heads": keys, "tie_word_embeddings": tied,
    }  # fmt: skip
    cases: list[dict[str, Any]] = [{"rank": 8}, {"rank": 64}, {"rank": 64, "checkpointing": True}]
    small, large, again = (memory_need(model, samples=4, length=2048, **case) for case in cases)
    totals = " | ".join(f"{need.total / 1e9:.1f}" for need in (small, large, again))
    row = f"| {name} ({small.parameters / 1e9:.2f}B) | {totals} | {large.adapter / 4e6:.0f} MB |\n"
    assert row in (PROJECT_ROOT / "docs/llm.md").read_text()


@pytest.mark.parametrize(
    "changes",
    [{}, {"checkpointing": True}, {"dropout": True, "rank": 16}, {"target": "attention"}, {"target": "mlp"}],
    ids=str,
)
def test_memory_is_what_torch_keeps_for_the_backward_pass(changes: dict[str, Any]) -> None:
    """In bfloat16 on the CPU. Weights are exact; activations within a tenth."""
    shape: dict[str, Any] = {
        "hidden_size": 128, "num_hidden_layers": 3, "intermediate_size": 352, "vocab_size": 300, "head_dim": 32,
        "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False,
    }  # fmt: skip
    options: dict[str, Any] = {"rank": 4, "samples": 2, "length": 128, **changes}
    need = memory_need(shape, **options)
    base = LlamaForCausalLM(LlamaConfig(**shape)).to(torch.bfloat16).requires_grad_(False)
    assert sum(parameter.numel() for parameter in base.parameters()) == need.parameters
    if options.get("checkpointing"):
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    modules = llm_adapter.layers_to_adapt(base, options.get("target", "all"))
    dropout = 0.1 if options.get("dropout") else 0.0
    model = get_peft_model(base, LoraConfig(r=options["rank"], target_modules=modules, lora_dropout=dropout)).train()
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert need.adapter == 16 * trained
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    held: dict[int, tuple[int, torch.Tensor]] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            held[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), torch.autocast("cpu", torch.bfloat16):
        model(input_ids=torch.zeros(2, 128, dtype=torch.int64), use_cache=False)
    counted = sum(size for size, _ in held.values())
    if options.get("checkpointing"):  # and one layer's, when it is computed again
        counted += (memory_need(shape, **{**options, "checkpointing": False}).activations) // 3
    assert need.activations == pytest.approx(counted, rel=0.1)
