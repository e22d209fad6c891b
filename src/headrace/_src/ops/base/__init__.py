"""What every op family uses: defining ops, shape rules, conversions, samples, simplification."""
