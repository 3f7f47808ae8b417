//! Mistakes in the functions that the schedules must find.
