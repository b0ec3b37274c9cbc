"""The steps of the stage `transport`: spring sets, plans, parameters, the comparison with averages, the picture."""
