"""Questions and actions for people, as plain functions over the `Desk` and `Actions` ports; the values are frozen."""
