"""Fused attention."""

from __future__ import annotations

from typing import Any

import torch


class FusedSDPA(torch.autograd.Function):
    """Attention in one kernel. Stricter than the real one: a mask is numbers to add, of the queries' type, and what
    this project has no use for is refused."""

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        softmax_mode: str = "None",
        recompute_mode: bool | None = None,
        valid_seq_len: torch.Tensor | None = None,
        seq_padding_type: str = "left",
        return_dropout_mask: bool = False,
        return_attn_probs: bool = False,
    ) -> torch.Tensor:
        assert softmax_mode == "None" and valid_seq_len is None and not return_dropout_mask and not return_attn_probs
        assert attn_mask is None or (attn_mask.dtype == q.dtype and not is_causal), "mask and queries differ in type"
        ctx.scale = q.shape[-1] ** -0.5 if scale is None else scale
        scores = (q.float() @ k.float().transpose(-2, -1)) * ctx.scale
        if attn_mask is not None:
            scores = scores + attn_mask.float()
        if is_causal:
            scores = scores + torch.full_like(scores, torch.finfo(torch.float32).min).triu(1)
        shares = torch.softmax(scores.float(), dim=-1)
        kept = (torch.rand_like(shares) >= dropout_p) / (1 - dropout_p)
        ctx.save_for_backward(q, k, v, shares, kept)
        return ((shares * kept) @ v.float()).to(q.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, shares, kept = ctx.saved_tensors
        grad = grads[0].float()
        of_values = (shares * kept).transpose(-2, -1) @ grad
        of_shares = (grad @ v.float().transpose(-2, -1)) * kept
        of_scores = shares * (of_shares - (of_shares * shares).sum(-1, keepdim=True)) * ctx.scale
        of_queries, of_keys = of_scores @ k.float(), of_scores.transpose(-2, -1) @ q.float()
        return (of_queries.to(q.dtype), of_keys.to(k.dtype), of_values.to(v.dtype), *[None] * 10)
