"""How long tests wait for what must come."""

#: Seconds after which something hangs: no busy machine is that slow
PATIENCE = 400.0
