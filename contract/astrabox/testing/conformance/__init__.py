"""The parts of the conformance suite, one module per group of guarantees."""
