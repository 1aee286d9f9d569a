//! Which file of a package uses which: no file needs one that needs it, and nothing in the core looks up.
//!
//! Paths that begin with `crate`, `super`, `self`, a child module or an imported name are resolved, in `use` and in
//! code. A name that a module only re-exports belongs to the file that defines it. Methods are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::architecture::collect;
use crate::{code, root};

type Module = Vec<String>;

/// The uses of every file, by the names of the files: `core/holds/mod` for `core/holds/mod.rs`.
type Edges = BTreeMap<String, BTreeSet<String>>;

#[derive(Default)]
struct File {
    name: String,
    /// Those in code, of two segments or more.
    paths: Vec<Module>,
    /// By the name that a `use` brings in: its path, and whether only others need it.
    imports: BTreeMap<String, (Module, bool)>,
}

struct Package(BTreeMap<Module, File>);

impl Package {
    /// The files below `folder`, without tests.
    fn read(folder: &Path) -> Self {
        let mut files = Vec::new();
        collect(folder, &mut files);
        let named = files.iter().map(|(path, text)| {
            let path = path.strip_prefix(folder).expect("the file is in the folder").with_extension("");
            (path.to_str().expect("the path is UTF-8").to_owned(), text.as_str())
        });
        Self::of(named)
    }

    fn of<'a>(files: impl Iterator<Item = (String, &'a str)>) -> Self {
        let is_test = |name: &str| name.split('/').any(|part| ["tests", "model"].contains(&part));
        let files = files.filter(|(name, _)| !is_test(name)).map(|(name, text)| {
            let module: Module =
                name.split('/').filter(|part| !["mod", "lib"].contains(part)).map(str::to_owned).collect();
            (module, File::read(name, &code(text)))
        });
        Self(files.collect())
    }

    fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (module, file) in &self.0 {
            let imported = file.imports.values().filter(|(_, passed_on)| !passed_on).map(|(path, _)| path);
            let used = imported.chain(&file.paths).filter_map(|path| self.resolve(module, path, 0));
            let others = used.filter(|used| *used != file.name).map(str::to_owned).collect();
            edges.insert(file.name.clone(), others);
        }
        edges
    }

    /// The file that defines what `path` names in `module`, if that is one of this package.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<&str> {
        let (first, mut rest) = path.split_first().filter(|_| depth < 9)?;
        let mut at = match first.as_str() {
            "crate" => Module::new(),
            "super" => module[..module.len() - 1].to_vec(),
            "self" => module.to_vec(),
            _ if self.0.contains_key(&[module, &path[..1]].concat()) => [module, &path[..1]].concat(),
            imported => {
                let (imported, _) = self.0[module].imports.get(imported)?;
                return self.resolve(module, &[imported, rest].concat(), depth + 1);
            }
        };
        while let Some((next, after)) = rest.split_first() {
            let child = [at.as_slice(), &rest[..1]].concat();
            match next.as_str() {
                "super" => drop(at.pop()),
                "self" => {}
                _ if self.0.contains_key(&child) => at = child,
                item if self.0[&at].imports.contains_key(item) => {
                    return self.resolve(&at, rest, depth + 1).or(Some(&self.0[&at].name));
                }
                _ => break,
            }
            rest = after;
        }
        Some(&self.0[&at].name)
    }
}

impl File {
    fn read(name: String, code: &str) -> Self {
        let mut is_inline = false;
        let lines = code.lines().map(|line| {
            is_inline = line != "}" && (is_inline || line.contains("mod ") && line.ends_with('{'));
            // What is above a module that is written in the file is the file.
            if is_inline { line.replacen("super::", "self::", 1) } else { line.to_owned() }
        });
        let code = &lines.collect::<Vec<_>>().join("\n");
        let (mut file, mut tokens) = (Self { name, ..Self::default() }, tokens(code).into_iter().peekable());
        let (mut before, mut words, mut exported) = (String::new(), BTreeSet::new(), BTreeSet::new());
        while let Some(token) = tokens.next() {
            if token == "use" && tokens.peek().is_some_and(|next| next != "<") {
                let tree: Vec<_> = tokens.by_ref().take_while(|token| token != ";").collect();
                let names: Vec<_> = imports(&[], &tree);
                exported.extend(
                    names.iter().filter(|_| ["pub", ")"].contains(&&*before)).map(|(name, _)| name.clone()),
                );
                file.imports.extend(names.into_iter().map(|(name, path)| (name, (path, false))));
            } else if is_word(&token) && before != "::" {
                let mut path = vec![token.clone()];
                while tokens.next_if(|next| next == "::").is_some() {
                    path.extend(tokens.next_if(|next| is_word(next)));
                }
                words.insert(token.clone());
                file.paths.extend((path.len() > 1).then_some(path));
            }
            before = token;
        }
        for (name, (_, passed_on)) in &mut file.imports {
            *passed_on = exported.contains(name) && !words.contains(name);
        }
        file
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut joins = false;
    for c in code.chars() {
        let is_part = c.is_alphanumeric() || c == '_';
        match tokens.last_mut() {
            Some(last) if joins && (is_part && last != ":" || c == ':' && last == ":") => last.push(c),
            _ if !c.is_whitespace() => tokens.push(c.to_string()),
            _ => {}
        }
        joins = is_part || c == ':' && tokens.last().is_some_and(|last| last == ":");
    }
    tokens
}

/// The names that a tree of `use` brings in, with their paths.
fn imports(before: &[String], tree: &[String]) -> Vec<(String, Module)> {
    let mut path = before.to_vec();
    let mut rest = tree.iter();
    while let Some(token) = rest.next() {
        match token.as_str() {
            "{" => {
                let (mut depth, group) = (0, rest.as_slice());
                let parts = group.split(|token| {
                    depth += i32::from(token == "{") - i32::from(token == "}");
                    token == "," && depth == 0 || depth < 0
                });
                return parts.filter(|part| !part.is_empty()).flat_map(|part| imports(&path, part)).collect();
            }
            "as" => return vec![(rest.next().cloned().unwrap_or_default(), path)],
            "::" => {}
            _ => path.push(token.clone()),
        }
    }
    let name = path.iter().rev().find(|name| *name != "self").cloned().unwrap_or_default();
    vec![(name, path)]
}

/// The uses that lie on a circle: what is used needs the file that uses it, too.
fn circles(edges: &Edges) -> BTreeSet<(&str, &str)> {
    let reaches = |from: &str, to: &str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop().filter(|file| *file != to) {
            next.extend(edges[file].iter().map(String::as_str).filter(|used| seen.insert(*used)));
        }
        seen.contains(to)
    };
    let uses = edges.iter().flat_map(|(file, used)| used.iter().map(|used| (file.as_str(), used.as_str())));
    uses.filter(|(file, used)| reaches(used, file)).collect()
}

#[test]
fn files_form_no_circle() {
    for (folder, part, least) in [("lockcore/src", "", 250), ("migration/src", "session", 25)] {
        let mut edges = Package::read(&root().join(folder)).edges();
        edges.retain(|file, _| file.starts_with(part));
        edges.values_mut().for_each(|used| used.retain(|file| file.starts_with(part)));
        let uses: usize = edges.values().map(BTreeSet::len).sum();
        assert!(uses > least, "only {uses} uses were found in {folder}");
        let circles = circles(&edges);
        assert!(circles.is_empty(), "uses in {folder} that form a circle: {circles:#?}");
    }
}

#[test]
fn circles_are_found_by_every_path() {
    let circle = |uses: &str| {
        let root = "mod a;\npub use a::x::X;\npub use a::y::{Z, Y as Why};";
        let files =
            [("lib", root), ("a/mod", "mod x;\nmod y;"), ("a/x", uses), ("a/y", "fn f(_: crate::X) {}")];
        let edges = Package::of(files.iter().map(|(name, text)| ((*name).to_owned(), *text))).edges();
        circles(&edges).len()
    };
    for uses in [
        "use super::y::Y;",
        "use crate::a::{\n    y::{self},\n};",
        "use crate::{Effect, Why};",
        "use crate::a;\nfn f(_: a::y::Y) {}",
        "fn f() -> Option<super::super::a::y::Y> {}",
        "mod inner {\n    use super::super::y::Y;\n}",
    ] {
        assert_eq!(circle(uses), 2, "{uses}");
    }
    for uses in ["use y::Y;", "// super::y::Y", "mod inner {\n    use super::y::Y;\n}"] {
        assert_eq!(circle(uses), 0, "{uses}");
    }
}

/// The parts of the core, the lowest layer first: each uses only those of lower layers, and nothing of its own.
/// A part is a file, or a folder with all that has no row of its own.
const LAYERS: [&[&str]; 12] = [
    &["words"],
    &["clock"],
    &["backend"],
    &["memory"],
    &["core/context", "core/deadline", "core/lease", "core/metrics", "core/queue"],
    &["core/ownership"],
    &["core/leases", "core/request"],
    &["core/confirm", "core/names", "core/watchdog"],
    &["core/holds"],
    &["core/acquire", "core/revocation"],
    &["core/mod"],
    &["api"],
];

#[test]
fn core_files_use_only_lower_layers() {
    let parts =
        LAYERS.iter().enumerate().flat_map(|(layer, parts)| parts.iter().map(move |part| (*part, layer)));
    let parts: Vec<_> = parts.collect();
    let part = |file: &str| {
        let is_in =
            |part: &str| file.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        *parts.iter().find(|(part, _)| is_in(part)).unwrap_or_else(|| panic!("{file} is in no layer"))
    };
    let edges = Package::read(&root().join("lockcore/src")).edges();
    for (file, used) in edges.iter().flat_map(|(file, uses)| uses.iter().map(move |used| (file, used))) {
        let ((here, layer), (there, below)) = (part(file), part(used));
        assert!(here == there || below < layer, "{file} uses {used}, which is in no lower layer");
    }
}
