//! Which files of an owner type call each other: the largest circle is what has to be understood at
//! once.
//!
//! A method of the type is a function in an `impl` block of it; the file that has it is a node. A
//! file calls another if one of its methods names a method of the other behind `self.`, `Self::`,
//! the type's name or a variable called as the type (`array.publish()`). That is text and not a
//! compiler's answer: names are unique within one type, so a call that is found is one, but those
//! through a function pointer or a variable of another name are not found.
//!
//! Deliberately absent: traits (`Debug` calls nothing), functions that are no method, and tests.

use super::paths::impls;
use super::source::{Source, is_word, item_end};
use super::{Finding, Weight};
use std::collections::{BTreeMap, BTreeSet};

/// A type with methods in several files, and the folder that has them.
pub(super) struct Owner {
    pub(super) name: &'static str,
    pub(super) folder: &'static str,
    /// So many files may call each other in a circle.
    most: usize,
}

/// The owner types of the engine.
pub(super) const OWNERS: [Owner; 2] = [
    Owner {
        name: "Shard",
        folder: "crates/engine/src/shard/",
        // The stripe operation: one state machine.
        most: 10,
    },
    Owner {
        name: "Array",
        folder: "crates/engine/src/array/",
        // The region map: one state machine.
        most: 5,
    },
];

/// The graph of an owner type, of the files of the tree.
pub(super) fn of_tree(
    owner: &Owner,
    paths: &[String],
    read: impl Fn(&str) -> Option<String>,
) -> Graph {
    let rust = |path: &&String| path.starts_with(owner.folder) && path.ends_with(".rs");
    let texts = paths.iter().filter(rust);
    let texts = texts.filter_map(|path| Some((path.clone(), read(path)?)));
    Graph::of(owner.name, &texts.collect::<Vec<_>>())
}

/// Circles that have grown.
pub(super) fn check(paths: &[String], read: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let finding = |owner: &Owner| {
        let graph = of_tree(owner, paths, &read);
        let circle = graph.largest_circle();
        (circle.len() > owner.most).then(|| Finding {
            weight: Weight::Error,
            path: owner.folder.to_owned(),
            line: 0,
            text: format!(
                "{} files with methods of {} call each other, more than {}: {}; return what \
                 is to be done instead of calling up",
                circle.len(),
                owner.name,
                owner.most,
                circle.join(", ")
            ),
        })
    };
    OWNERS.iter().filter_map(finding).collect()
}

/// The files that have methods of a type, and those that each calls.
#[derive(Default)]
pub(super) struct Graph {
    files: Vec<String>,
    methods: usize,
    calls: Vec<BTreeSet<usize>>,
}

impl Graph {
    /// Of these files, each a path and its text.
    pub(super) fn of(owner: &str, texts: &[(String, String)]) -> Graph {
        let bodies = texts.iter().map(|(_, text)| methods(owner, text));
        let bodies: Vec<(usize, Vec<Method>)> = bodies
            .enumerate()
            .filter(|(_, methods)| !methods.is_empty())
            .collect();
        let home: BTreeMap<&str, usize> = bodies
            .iter()
            .enumerate()
            .flat_map(|(node, (_, methods))| methods.iter().map(move |m| (m.name.as_str(), node)))
            .collect();
        let called = |(node, (_, methods)): (usize, &(usize, Vec<Method>))| {
            let names = methods
                .iter()
                .flat_map(|method| called(owner, &method.body));
            let nodes = names.filter_map(|name| home.get(name.as_str()).copied());
            nodes.filter(|&other| other != node).collect()
        };
        Graph {
            files: bodies.iter().map(|(at, _)| texts[*at].0.clone()).collect(),
            methods: home.len(),
            calls: bodies.iter().enumerate().map(called).collect(),
        }
    }

    /// The most files of which each calls each, perhaps by way of others.
    pub(super) fn largest_circle(&self) -> Vec<&str> {
        let reached: Vec<BTreeSet<usize>> = (0..self.files.len()).map(|f| self.reach(f)).collect();
        let circle = |from: usize| {
            let back = |&to: &usize| to == from || reached[to].contains(&from);
            let there = reached[from].iter().copied().chain([from]);
            there.filter(back).collect::<BTreeSet<usize>>()
        };
        let circles = (0..self.files.len()).map(circle);
        let largest = circles.max_by_key(BTreeSet::len).unwrap_or_default();
        largest.iter().map(|&at| self.files[at].as_str()).collect()
    }

    fn reach(&self, from: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            next.extend(self.calls[at].iter().filter(|&&to| reached.insert(to)));
        }
        reached
    }

    /// What is printed of it.
    pub(super) fn report(&self, owner: &Owner) -> String {
        let circle = self.largest_circle();
        let within = |path: &&str| path.strip_prefix(owner.folder).unwrap_or(path).to_owned();
        let names: Vec<String> = circle.iter().map(within).collect();
        format!(
            "{}: {} methods in {} files; the largest circle of calls has {} files: {}",
            owner.name,
            self.methods,
            self.files.len(),
            circle.len(),
            names.join(", ")
        )
    }
}

struct Method {
    name: String,
    body: String,
}

/// The methods of a type in a file, without those of tests.
fn methods(owner: &str, text: &str) -> Vec<Method> {
    let source = Source::read(text);
    let starts: Vec<usize> = impls(&source)
        .into_iter()
        .filter(|(line, name)| name == owner && !source.test[*line])
        .map(|(line, _)| line)
        .collect();
    let offset = |line: usize| {
        source.code[..line]
            .iter()
            .map(|l| l.len() + 1)
            .sum::<usize>()
    };
    let code = source.code.join("\n");
    let blocks = starts.into_iter().map(|line| {
        let last = code[..item_end(&code, offset(line))].matches('\n').count();
        line..=last
    });
    let mut found = Vec::new();
    for block in blocks {
        let inside = source.functions.iter();
        let inside = inside.filter(|(_, first, _)| block.contains(first));
        found.extend(inside.map(|(name, first, last)| Method {
            name: name.clone(),
            body: source.code[*first..=*last].join("\n"),
        }));
    }
    found
}

/// The names of what a body calls on the type.
fn called(owner: &str, body: &str) -> BTreeSet<String> {
    let variable = owner.to_lowercase();
    let mut found = BTreeSet::new();
    for (receiver, link) in [
        ("self", "."),
        (variable.as_str(), "."),
        ("Self", "::"),
        (owner, "::"),
    ] {
        for (at, _) in body.match_indices(receiver) {
            let before = body[..at].bytes().next_back();
            let rest = body[at + receiver.len()..].trim_start();
            let Some(rest) = rest.strip_prefix(link) else {
                continue;
            };
            if before.is_some_and(|byte| is_word(byte) || byte == b'.') {
                continue;
            }
            let name: String = rest
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            let path = link == "::" || rest[name.len()..].trim_start().starts_with('(');
            if path {
                found.insert(name);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_that_has_grown_is_an_error() {
        let folder = "crates/engine/src/array/";
        let files = |calls: usize| -> Vec<(String, String)> {
            let file = |at: usize| {
                let next = (at + 1) % calls;
                let text = format!("impl Array {{ fn f{at}(&self) {{ self.f{next}() }} }}");
                (format!("{folder}f{at}.rs"), text)
            };
            (0..calls).map(file).collect()
        };
        let found = |calls: usize| {
            let files = files(calls);
            let paths: Vec<String> = files.iter().map(|(path, _)| path.clone()).collect();
            let read = |path: &str| files.iter().find(|f| f.0 == path).map(|f| f.1.clone());
            check(&paths, read).len()
        };
        assert_eq!((found(5), found(6)), (0, 1));
    }

    fn graph(texts: &[(&str, &str)]) -> Graph {
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Graph::of("Shard", &texts.iter().map(own).collect::<Vec<_>>())
    }

    #[test]
    fn files_that_call_each_other_by_way_of_a_third_are_a_circle() {
        let found = graph(&[
            ("a", "impl Shard { fn a(&self) { self\n.b(); } }"),
            ("b", "impl Shard { fn b(&self) { Self::c(self) } }"),
            ("c", "impl Shard { fn c(shard: &Shard) { shard.a() } }"),
            ("d", "impl Shard { fn d(&self) { self.a() } }"),
        ]);
        assert_eq!(found.largest_circle(), ["a", "b", "c"]);
        assert_eq!((found.files.len(), found.methods), (4, 4));
    }

    #[test]
    fn a_field_a_method_of_another_and_a_test_are_no_calls() {
        let found = graph(&[
            (
                "a",
                "impl Shard { fn a(&self) { self.part.b(); self.b; } }\n\
                 impl Other { fn x(&self) { self.b() } }\n\
                 #[cfg(test)]\nmod tests {\n impl Shard { fn t(&self) { self.b() } }\n}\n",
            ),
            ("b", "impl Shard { fn b(&self) { self.a() } }"),
        ]);
        assert_eq!(found.largest_circle().len(), 1);
        assert_eq!(found.methods, 2);
    }
}
