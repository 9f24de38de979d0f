"""The execution provider ``cpu``: whole models and single nodes on the host."""
