//! What every engine must do: the scripts in `testscripts`, random histories, crashes.

mod crash;
mod open;
mod postgres;
mod random;
mod scripts;
