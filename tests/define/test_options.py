"""Options carry in their annotations what the code must know of them."""

from __future__ import annotations

from dataclasses import fields

from gaudi_tune.define.options import TRAITS, SweepOptions, with_usual


def test_only_an_option_that_may_be_missing_has_a_usual_value_and_only_a_tuple_has_an_example() -> None:
    for option in fields(SweepOptions):
        traits = TRAITS[option.name]
        assert traits.usual is None or option.default is None, option.name
        assert bool(traits.example) == (option.default == ()), option.name


def test_the_usual_value_stands_for_what_was_not_given() -> None:
    options = with_usual(SweepOptions(retries=1, hang_minutes=0.0))
    assert (options.retries, options.hang_minutes, options.same_errors, options.checkpoint_minutes) == (1, 0.0, 5, 10.0)
    assert options.target is None, "it has no usual value"
