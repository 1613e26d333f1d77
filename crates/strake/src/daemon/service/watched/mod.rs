//! What is watched for others: how drives are, what alerts see of arrays, and which are missing.

mod alerts;
pub(crate) mod health;
pub(crate) mod missing;
