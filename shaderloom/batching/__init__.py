"""Join requests of equal shapes along the batch of a model whose rows are proven independent."""
