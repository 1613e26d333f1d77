//! What is watched for others: how drives are, and what alerts see of arrays.

mod alerts;
pub(crate) mod health;
