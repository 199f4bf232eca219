"""Whether every place that shows a number of a sweep shows the right one."""
