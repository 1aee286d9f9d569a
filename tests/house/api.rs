//! What each package lets others see, one file each below `docs/api`, so that a reviewer sees in a diff what
//! changes for them. Read from the sources: what `lib.rs` makes public, however deep it lies.
//!
//! `UPDATE_API=1 cargo test --test house` writes the files anew.
//!
//! Not promised: types of private modules that have a public one's name are taken for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::{Attribute, Fields, ImplItem, Item, ItemImpl, ItemMod, Signature, TraitItem, UseTree, Visibility};

use crate::{metadata, root};

/// A module with what is in it, wherever its file lies.
#[derive(Default)]
struct Module {
    items: Vec<Item>,
    modules: BTreeMap<String, Self>,
}

impl Module {
    fn read(file: &Path, folder: &Path) -> Self {
        let text =
            std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Self::of(parsed.items, folder)
    }

    fn of(items: Vec<Item>, folder: &Path) -> Self {
        let mut module = Self::default();
        for item in items {
            if let Item::Mod(inner) = &item {
                if is_test(&inner.attrs) {
                    continue;
                }
                let name = inner.ident.to_string();
                let within = folder.join(&name);
                let read = match &inner.content {
                    Some((_, items)) => Self::of(items.clone(), &within),
                    None => Self::read(&file_of(folder, &name), &within),
                };
                module.modules.insert(name, read);
            }
            module.items.push(item);
        }
        module
    }

    fn at(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |module, name| module.modules.get(name))
    }

    /// Every impl block, tests apart.
    fn impls<'a>(&'a self, found: &mut Vec<&'a ItemImpl>) {
        found.extend(self.items.iter().filter_map(|item| match item {
            Item::Impl(block) if !is_test(&block.attrs) => Some(block),
            _ => None,
        }));
        self.modules.values().for_each(|module| module.impls(found));
    }
}

fn file_of(folder: &Path, name: &str) -> PathBuf {
    let file = folder.join(format!("{name}.rs"));
    if file.exists() { file } else { folder.join(name).join("mod.rs") }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && {
            let condition = attribute.meta.require_list().map(|list| list.tokens.to_string());
            condition.is_ok_and(|condition| condition == "test" || condition.starts_with("all (test"))
        }
    })
}

/// What others see of a crate, as Rust without bodies.
struct Listing<'a> {
    root: &'a Module,
    impls: Vec<&'a ItemImpl>,
}

impl Listing<'_> {
    fn module(&self, path: &[String]) -> Vec<Item> {
        let module = self.root.at(path).expect("it was found before");
        let mut seen = Vec::new();
        for item in &module.items {
            match item {
                Item::Use(used) if is_public(&used.vis) => {
                    let before = seen.len();
                    self.used(path, &used.tree, &mut seen);
                    seen[before..].iter_mut().for_each(|item| under(item, &kept(&used.attrs)));
                }
                Item::Mod(inner) if is_public(&inner.vis) => {
                    let inside: Vec<_> = path.iter().cloned().chain([inner.ident.to_string()]).collect();
                    let content = Some((syn::token::Brace::default(), self.module(&inside)));
                    let attrs = kept(&inner.attrs);
                    seen.push(Item::Mod(ItemMod { attrs, content, semi: None, ..inner.clone() }));
                }
                _ => self.defined(item, &mut seen),
            }
        }
        seen
    }

    /// What a `pub use` stands for: the thing itself, if it is ours.
    fn used(&self, at: &[String], tree: &UseTree, seen: &mut Vec<Item>) {
        for (path, name, shown) in leaves(tree) {
            let (first, rest) =
                path.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
            let place: Vec<String> = match first {
                "crate" => rest.to_vec(),
                "self" => at.iter().chain(rest).cloned().collect(),
                "super" => at[..at.len() - 1].iter().chain(rest).cloned().collect(),
                _ => at.iter().chain(&path).cloned().collect(),
            };
            let Some(module) = self.root.at(&place) else {
                let path = path.iter().map(|name| format!("{name}::")).collect::<String>();
                seen.push(syn::parse_str(&format!("pub use {path}{name};")).expect("it was one before"));
                continue;
            };
            let before = seen.len();
            let named = |item: &&Item| name == "*" || name_of(item).is_some_and(|own| own == name);
            module.items.iter().filter(named).for_each(|item| self.defined(item, seen));
            for item in &module.items {
                if let Item::Use(again) = item
                    && leaves(&again.tree).iter().any(|(_, own, _)| *own == name)
                    && seen.len() == before
                {
                    let only = leaves(&again.tree).into_iter().filter(|(_, own, _)| *own == name);
                    for (path, own, _) in only {
                        let path = path.iter().map(|name| format!("{name}::")).collect::<String>();
                        let tree = syn::parse_str(&format!("{path}{own}")).expect("it was one before");
                        self.used(&place, &tree, seen);
                    }
                }
            }
            assert!(seen.len() > before, "{name} was not found in {place:?}");
            if let Item::Fn(it) = &mut seen[before] {
                it.sig.ident = syn::Ident::new(&shown, it.sig.ident.span());
            }
        }
    }

    fn defined(&self, item: &Item, seen: &mut Vec<Item>) {
        let mut item = item.clone();
        let is_seen = match &mut item {
            Item::Struct(it) => {
                it.attrs = kept(&it.attrs);
                let all = it.fields.len();
                without_private(&mut it.fields);
                if it.fields.len() < all {
                    it.attrs.push(syn::parse_quote!(#[private_fields]));
                }
                is_public(&it.vis)
            }
            Item::Enum(it) => {
                it.attrs = kept(&it.attrs);
                for variant in &mut it.variants {
                    variant.attrs = kept(&variant.attrs);
                    variant.fields.iter_mut().for_each(|field| field.attrs = kept(&field.attrs));
                }
                is_public(&it.vis)
            }
            Item::Trait(it) => {
                it.attrs = kept(&it.attrs);
                it.items.iter_mut().for_each(bare);
                is_public(&it.vis)
            }
            Item::Fn(it) => {
                it.attrs = kept(&it.attrs);
                *it.block = syn::parse_quote!({});
                is_public(&it.vis)
            }
            Item::Type(it) => {
                it.attrs = kept(&it.attrs);
                is_public(&it.vis)
            }
            Item::Const(it) => {
                it.attrs = kept(&it.attrs);
                is_public(&it.vis)
            }
            // The flags.
            Item::Macro(it) => {
                it.mac.tokens = undocumented(it.mac.tokens.clone());
                it.mac.path.segments.first().is_some_and(|path| path.ident == "bitflags")
            }
            _ => false,
        };
        let Some(name) = name_of(&item).filter(|_| is_seen) else { return };
        seen.push(item);
        seen.extend(self.impls.iter().filter_map(|block| of_type(block, &name)).map(Item::Impl));
    }
}

/// What is true of the `pub use` is true of what it names.
fn under(item: &mut Item, conditions: &[Attribute]) {
    let attributes = match item {
        Item::Fn(it) => &mut it.attrs,
        Item::Use(it) => &mut it.attrs,
        Item::Struct(it) => &mut it.attrs,
        Item::Enum(it) => &mut it.attrs,
        _ => return,
    };
    attributes.extend_from_slice(conditions);
}

/// The public half of a block, if it is one of that type.
fn of_type(block: &ItemImpl, name: &str) -> Option<ItemImpl> {
    let syn::Type::Path(path) = &*block.self_ty else { return None };
    if path.path.segments.last().is_none_or(|last| last.ident != name) {
        return None;
    }
    let mut block = ItemImpl { attrs: kept(&block.attrs), ..block.clone() };
    if block.trait_.is_some() {
        block.items.retain(|item| matches!(item, ImplItem::Type(_)));
        return Some(block);
    }
    block.items.retain(|item| match item {
        ImplItem::Fn(it) => is_public(&it.vis),
        ImplItem::Const(it) => is_public(&it.vis),
        _ => false,
    });
    for item in &mut block.items {
        match item {
            ImplItem::Fn(it) => {
                it.attrs = kept(&it.attrs);
                it.block = syn::parse_quote!({});
                unbound(&mut it.sig);
            }
            ImplItem::Const(it) => it.attrs = kept(&it.attrs),
            _ => {}
        }
    }
    (!block.items.is_empty()).then_some(block)
}

/// Whether an argument is mutable inside is not part of the API.
fn unbound(signature: &mut Signature) {
    for input in &mut signature.inputs {
        match input {
            syn::FnArg::Receiver(own) if own.reference.is_none() => own.mutability = None,
            syn::FnArg::Typed(typed) => {
                if let syn::Pat::Ident(name) = &mut *typed.pat {
                    name.mutability = None;
                }
            }
            syn::FnArg::Receiver(_) => {}
        }
    }
}

fn bare(item: &mut TraitItem) {
    match item {
        TraitItem::Fn(it) => {
            it.attrs = kept(&it.attrs);
            it.default = it.default.as_ref().map(|_| syn::parse_quote!({}));
        }
        TraitItem::Const(it) => it.attrs = kept(&it.attrs),
        TraitItem::Type(it) => it.attrs = kept(&it.attrs),
        _ => {}
    }
}

fn without_private(fields: &mut Fields) {
    let fields = match fields {
        Fields::Named(named) => &mut named.named,
        Fields::Unnamed(unnamed) => &mut unnamed.unnamed,
        Fields::Unit => return,
    };
    let public = std::mem::take(fields).into_iter().filter(|field| is_public(&field.vis));
    *fields = public.map(|field| syn::Field { attrs: kept(&field.attrs), ..field }).collect();
}

fn kept(attributes: &[Attribute]) -> Vec<Attribute> {
    let kept = ["cfg", "derive", "must_use", "non_exhaustive", "async_trait", "deprecated"];
    let is_kept = |attribute: &&Attribute| kept.iter().any(|name| attribute.path().is_ident(name));
    attributes.iter().filter(is_kept).cloned().collect()
}

fn undocumented(tokens: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    use proc_macro2::{Group, TokenTree};
    let mut left = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_doc = |next: &TokenTree| next.to_string().starts_with("[doc");
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' && tokens.peek().is_some_and(is_doc) => {
                tokens.next();
            }
            TokenTree::Group(group) => {
                let inside = undocumented(group.stream());
                left.push(TokenTree::Group(Group::new(group.delimiter(), inside)));
            }
            other => left.push(other),
        }
    }
    left.into_iter().collect()
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Struct(it) => &it.ident,
        Item::Enum(it) => &it.ident,
        Item::Trait(it) => &it.ident,
        Item::Fn(it) => &it.sig.ident,
        Item::Type(it) => &it.ident,
        Item::Const(it) => &it.ident,
        // The only one is that of `Guarantees`.
        Item::Macro(it) if it.mac.path.segments.first()?.ident == "bitflags" => {
            return Some("Guarantees".to_owned());
        }
        _ => return None,
    };
    Some(name.to_string())
}

/// Each name that is used, with the path before it, and what it is called here.
fn leaves(tree: &UseTree) -> Vec<(Vec<String>, String, String)> {
    match tree {
        UseTree::Path(path) => {
            let inside = |rest: Vec<_>| [path.ident.to_string()].into_iter().chain(rest).collect();
            let below = leaves(&path.tree).into_iter();
            below.map(|(rest, name, shown)| (inside(rest), name, shown)).collect()
        }
        UseTree::Name(name) => vec![(Vec::new(), name.ident.to_string(), name.ident.to_string())],
        UseTree::Rename(renamed) => vec![(Vec::new(), renamed.ident.to_string(), renamed.rename.to_string())],
        UseTree::Glob(_) => vec![(Vec::new(), "*".to_owned(), "*".to_owned())],
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
    }
}

#[test]
fn the_listings_are_current() {
    let folder = root().join("docs/api");
    let mut listed = 0;
    for package in metadata().workspace_packages() {
        let is_published = package.publish.is_none();
        let library = package.targets.iter().find(|target| target.is_lib());
        let Some(library) = library.filter(|_| is_published) else { continue };
        let file = library.src_path.as_std_path();
        let root = Module::read(file, file.parent().expect("a file is in a folder"));
        let mut impls = Vec::new();
        root.impls(&mut impls);
        let items = Listing { root: &root, impls }.module(&[]);
        let current = prettyplease::unparse(&syn::File { shebang: None, attrs: Vec::new(), items });
        let path = folder.join(format!("{}.txt", package.name));
        if std::env::var_os("UPDATE_API").is_some() {
            std::fs::create_dir_all(&folder)
                .and_then(|()| std::fs::write(&path, current))
                .expect("it can be written");
        } else {
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            let first = found.lines().zip(current.lines()).find(|(found, current)| found != current);
            let name = path.display();
            assert!(found == current, "{name} is stale, first at {first:?}; `make fix` writes it anew");
        }
        listed += 1;
    }
    assert!(listed >= 7, "only {listed} packages were listed");
}
