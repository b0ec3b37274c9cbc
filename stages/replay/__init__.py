"""replay: the optimised motion simulated once more and recorded, for the certificate and the viewer."""
