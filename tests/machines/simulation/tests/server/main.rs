//! The simulated server answers as a real one does, byte for byte.

mod both;
mod clients;
mod commands;
mod library;
mod lines;
mod replication;
mod scripts;
