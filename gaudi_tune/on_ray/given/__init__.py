"""Objects of Ray Tune that a user gives to build_tuner(): checked, translated, and put to work in a sweep."""
