"""Prove that the rows of a batch are independent, and open the batch of a model that was exported with one row."""
