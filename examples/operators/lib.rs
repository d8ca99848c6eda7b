//! Small operators that show one thing each; the programs stand beside this file.
//!
//! | example | shows |
//! |---|---|
//! | `greeting` | a kind of one's own, an owned object, a status, a test in virtual time |
//! | `mirror` | watching a second kind, writing across namespaces, a finalizer |
//!
//! What follows is the guide that goes through the first of them; its code is tested with the rest.
#![doc = include_str!("../../docs/writing-an-operator.md")]

/// The guide to looking into a running operator; its code is tested too.
#[doc = include_str!("../../docs/framework.md")]
mod framework {}
