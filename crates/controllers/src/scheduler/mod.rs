//! x
mod fit;
