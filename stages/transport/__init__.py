"""Parts of the stage `transport`: spring sets, plans, parameters, comparison with averages, picture."""
