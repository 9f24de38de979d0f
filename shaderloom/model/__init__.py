"""A model without a device: its header, inputs, cached plans, and its compiler."""
