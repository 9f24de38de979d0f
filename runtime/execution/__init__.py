"""Run one plan many times: bind groups, dispatches, submissions, and the weights that plans share."""
