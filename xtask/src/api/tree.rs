//! The modules of a crate as its files have them.

use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, Item, Lit, Meta, UseTree, Visibility};

/// A module: its items, and the modules in it.
pub(super) struct Module {
    pub(super) name: String,
    pub(super) is_public: bool,
    pub(super) items: Vec<Item>,
    pub(super) modules: Vec<Module>,
    pub(super) imports: Vec<Import>,
}

/// One name that a `use` brings into a module.
pub(super) struct Import {
    pub(super) is_public: bool,
    /// The path as it is written.
    pub(super) path: Vec<String>,
    /// The name in the module; `None` for a glob.
    pub(super) name: Option<String>,
}

impl Module {
    /// Reads a crate from its `lib.rs` on. Modules for tests are left out.
    pub(super) fn read(name: &str, library: &Path) -> Result<Self, String> {
        let folder = library.parent().map(Path::to_owned).unwrap_or_default();
        Self::parse(name, true, library, &folder)
    }

    fn parse(name: &str, is_public: bool, file: &Path, folder: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let parsed = syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        Self::build(name, is_public, parsed.items, folder)
    }

    fn build(name: &str, is_public: bool, all: Vec<Item>, folder: &Path) -> Result<Self, String> {
        let mut module = Self {
            name: name.to_owned(),
            is_public,
            items: Vec::new(),
            modules: Vec::new(),
            imports: Vec::new(),
        };
        for item in all.into_iter().filter(|item| !is_for_tests(attributes(item))) {
            match item {
                Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    let is_public = is_public_item(&inner.vis);
                    let below = folder.join(&name);
                    module.modules.push(match inner.content {
                        Some((_, items)) => Self::build(&name, is_public, items, &below)?,
                        None => Self::parse(&name, is_public, &file(&inner.attrs, folder, &name), &below)?,
                    });
                }
                Item::Use(found) => {
                    let is_public = is_public_item(&found.vis);
                    imports(&found.tree, &mut Vec::new(), is_public, &mut module.imports);
                }
                item => module.items.push(item),
            }
        }
        Ok(module)
    }

    /// Finds a module by its path below this one.
    pub(super) fn find(&self, path: &[String]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        self.modules.iter().find(|module| module.name == *first)?.find(rest)
    }
}

/// Whether an item is part of an API wherever its module is.
pub(super) fn is_public_item(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The file of `mod name;`.
fn file(attributes: &[Attribute], folder: &Path, name: &str) -> PathBuf {
    let named = attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(folder.join(text.value())),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    let plain = folder.join(format!("{name}.rs"));
    named.unwrap_or_else(|| if plain.exists() { plain } else { folder.join(name).join("mod.rs") })
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        let condition = list.tokens.to_string();
        list.path.is_ident("cfg") && (condition == "test" || condition.starts_with("all (test"))
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn imports(tree: &UseTree, before: &mut Vec<String>, is_public: bool, found: &mut Vec<Import>) {
    let mut add = |last: Option<String>, name: Option<String>| {
        let path = before.iter().cloned().chain(last).collect();
        found.push(Import { is_public, path, name });
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            imports(&path.tree, before, is_public, found);
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => add(None, before.last().cloned()),
        UseTree::Name(name) => add(Some(name.ident.to_string()), Some(name.ident.to_string())),
        UseTree::Rename(rename) => add(Some(rename.ident.to_string()), Some(rename.rename.to_string())),
        UseTree::Glob(_) => add(None, None),
        UseTree::Group(group) => {
            for tree in &group.items {
                imports(tree, before, is_public, found);
            }
        }
    }
}
