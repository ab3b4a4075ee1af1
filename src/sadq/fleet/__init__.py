"""The member axis: many learners in one compiled program, over environments in JAX and outside it; imports `learning`."""
