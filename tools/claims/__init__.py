"""The paper's claims, and the rules that decide from result files whether they hold."""
