//! What is watched for others: what arrays answer, how drives are, what alerts see of arrays, and
//! which are missing.

mod alerts;
pub(crate) mod answers;
pub(crate) mod health;
pub(crate) mod missing;
