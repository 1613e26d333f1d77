//! The studies that come with the program: what was published about RAID on large drives.

use crate::definition::Study;

/// Name and text.
const TEXTS: [(&str, &str); 5] = [
    ("s1.toml", include_str!("../studies/s1.toml")),
    ("s2.toml", include_str!("../studies/s2.toml")),
    ("s3.toml", include_str!("../studies/s3.toml")),
    ("s4.toml", include_str!("../studies/s4.toml")),
    ("s5.toml", include_str!("../studies/s5.toml")),
];

/// All of them.
pub fn all() -> Vec<Study> {
    let read = |(file, text): (&str, &str)| {
        Study::parse(file, text).expect("a test reads the studies that come with the program")
    };
    TEXTS.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_study_that_comes_along_is_right_and_is_called_as_its_file() {
        for (file, text) in TEXTS {
            let study = Study::parse(file, text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(format!("{}.toml", study.name), file);
            assert!(
                study.cases.iter().all(|case| !case.expect.is_empty()),
                "{file}"
            );
        }
    }
}
