"""Switches and logs for Intel's own debugging: accepted, without effect."""

from typing import Any


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


_bridge_cleanup = _dump_memory_reporter = _hb_print = _mem_log = _memstat_livealloc = _set_dynamic_mode = _nothing
_memstat_devmem_start_collect = _memstat_devmem_stop_collect = _set_module_name = _nothing
_enable_permute_pass = _enable_weight_permute_pass = _nothing


def _get_fallback_op_count() -> dict[str, int]:
    return {}
