"""The benchmarks: times and ratios of one run on one machine."""
