//! Deployments: replace pods by newer ones, a few at a time.
mod budget;
mod plan;
#[cfg(test)]
mod plan_tests;
mod status;
mod template;
