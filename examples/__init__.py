"""Programs that use Shaderloom."""
