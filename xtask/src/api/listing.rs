//! The text of a listing: a line per item and member, sorted by path.

use std::collections::BTreeSet;

use quote::ToTokens;
use syn::{Fields, ImplItem, Item, TraitItem, Type};

use super::tree::{Import, Module, is_public_item};

/// The public API of a crate.
pub(super) struct Listing {
    /// A line per item and member.
    pub(super) text: String,
    /// The names of the structs, enums, traits and type aliases that the crate declares.
    pub(super) types: BTreeSet<String>,
}

impl Listing {
    pub(super) fn of(root: &Module) -> Self {
        let mut lister = Lister { root, lines: BTreeSet::new(), types: BTreeSet::new(), depth: 0 };
        lister.module(root, &mut Vec::new(), &root.name.clone());
        let mut text: String = lister.lines.into_iter().collect::<Vec<_>>().join("\n");
        text.push('\n');
        Self { text, types: lister.types }
    }
}

/// Re-exports may go in circles; no real chain of them is longer.
const MAX_DEPTH: usize = 16;

struct Lister<'a> {
    root: &'a Module,
    lines: BTreeSet<String>,
    types: BTreeSet<String>,
    depth: usize,
}

impl<'a> Lister<'a> {
    /// Lists the items of a module under the name `shown`. `path` is the module's path in the crate.
    fn module(&mut self, module: &'a Module, path: &mut Vec<String>, shown: &str) {
        if self.depth == MAX_DEPTH {
            return;
        }
        self.depth += 1;
        for item in &module.items {
            if let Some(name) = public_name(item) {
                self.item(item, path, &format!("{shown}::{name}"));
            }
        }
        for inner in module.modules.iter().filter(|inner| inner.is_public) {
            path.push(inner.name.clone());
            self.module(inner, path, &format!("{shown}::{}", inner.name));
            path.pop();
        }
        for import in module.imports.iter().filter(|import| import.is_public) {
            self.import(import, path, shown);
        }
        self.depth -= 1;
    }

    fn import(&mut self, import: &'a Import, from: &[String], shown: &str) {
        let Some(target) = absolute(self.root, from, &import.path) else {
            let name = import.name.as_deref().unwrap_or("*");
            self.lines.insert(format!("{shown}::{name} = {}", import.path.join("::")));
            return;
        };
        let Some(name) = &import.name else {
            if let Some(module) = self.root.find(&target) {
                self.module(module, &mut target.clone(), shown);
            }
            return;
        };
        self.target(&target, &format!("{shown}::{name}"));
    }

    /// Lists the item or module at an absolute path, directly or by further imports.
    fn target(&mut self, target: &[String], shown: &str) {
        if let Some(module) = self.root.find(target) {
            self.module(module, &mut target.to_vec(), shown);
            return;
        }
        let Some((name, path)) = target.split_last() else { return };
        let Some(module) = self.root.find(path) else { return };
        for item in module.items.iter().filter(|item| public_name(item).is_some_and(|found| found == *name)) {
            self.item(item, path, shown);
        }
        for import in module.imports.iter().filter(|import| import.name.as_ref() == Some(name)) {
            match absolute(self.root, path, &import.path) {
                Some(next) if next != target => self.target(&next, shown),
                Some(_) => {}
                None => {
                    self.lines.insert(format!("{shown} = {}", import.path.join("::")));
                }
            }
        }
    }

    fn item(&mut self, item: &Item, path: &[String], shown: &str) {
        if matches!(item, Item::Struct(_) | Item::Enum(_) | Item::Trait(_) | Item::Type(_)) {
            self.types.extend(item_name(item));
        }
        match item {
            Item::Fn(item) => self.line(format!("{shown}{}", signature(&item.sig))),
            Item::Const(item) => self.line(format!("{shown}: {}", text(&item.ty))),
            Item::Static(item) => self.line(format!("{shown}: {}", text(&item.ty))),
            Item::Type(item) => self.line(format!("{shown}{} = {}", text(&item.generics), text(&item.ty))),
            Item::Macro(_) => self.line(format!("{shown}!")),
            Item::Struct(item) => {
                self.line(format!("{shown}{}: struct", text(&item.generics)));
                self.fields(&item.fields, shown);
                self.methods(&item.ident.to_string(), path, shown);
            }
            Item::Enum(item) => {
                self.line(format!("{shown}{}: enum", text(&item.generics)));
                for variant in &item.variants {
                    self.line(format!("{shown}::{}", text_of_variant(variant)));
                }
                self.methods(&item.ident.to_string(), path, shown);
            }
            Item::Trait(item) => {
                let bounds = text(&item.supertraits);
                let colon = if bounds.is_empty() { "" } else { ": " };
                self.line(format!("{shown}{}: trait{colon}{bounds}", text(&item.generics)));
                for member in &item.items {
                    match member {
                        TraitItem::Fn(member) => {
                            self.line(format!("{shown}::{}{}", member.sig.ident, signature(&member.sig)));
                        }
                        TraitItem::Type(member) => self.line(format!("{shown}::{}: type", member.ident)),
                        TraitItem::Const(member) => {
                            self.line(format!("{shown}::{}: {}", member.ident, text(&member.ty)));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn line(&mut self, line: String) {
        self.lines.insert(line);
    }

    fn fields(&mut self, fields: &Fields, shown: &str) {
        for (number, field) in fields.iter().enumerate().filter(|(_, field)| is_public_item(&field.vis)) {
            let name = field.ident.as_ref().map_or_else(|| number.to_string(), ToString::to_string);
            self.line(format!("{shown}.{name}: {}", text(&field.ty)));
        }
    }

    /// Lists the public methods of all inherent implementations for a type.
    fn methods(&mut self, name: &str, path: &[String], shown: &str) {
        let mut found = Vec::new();
        implementations(self.root, self.root, &mut Vec::new(), name, path, &mut found);
        for line in found {
            self.lines.insert(format!("{shown}::{line}"));
        }
    }
}

fn implementations(
    root: &Module,
    module: &Module,
    at: &mut Vec<String>,
    name: &str,
    path: &[String],
    found: &mut Vec<String>,
) {
    for item in &module.items {
        let Item::Impl(block) = item else { continue };
        if block.trait_.is_some() || !is_for(root, module, at, &block.self_ty, name, path) {
            continue;
        }
        for member in &block.items {
            match member {
                ImplItem::Fn(member) if is_public_item(&member.vis) => {
                    found.push(format!("{}{}", member.sig.ident, signature(&member.sig)));
                }
                ImplItem::Const(member) if is_public_item(&member.vis) => {
                    found.push(format!("{}: {}", member.ident, text(&member.ty)));
                }
                _ => {}
            }
        }
    }
    for inner in &module.modules {
        at.push(inner.name.clone());
        implementations(root, inner, at, name, path, found);
        at.pop();
    }
}

/// Whether an implementation in `module` is for the type `name` that is defined at `path`.
fn is_for(
    root: &Module,
    module: &Module,
    at: &[String],
    implemented: &Type,
    name: &str,
    path: &[String],
) -> bool {
    let Type::Path(implemented) = implemented else { return false };
    let segments: Vec<String> =
        implemented.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    if segments.last().is_none_or(|last| last != name) {
        return false;
    }
    if segments.len() > 1 {
        return absolute(root, at, &segments).is_some_and(|found| found.ends_with(&[name.to_owned()]));
    }
    if at == path {
        return true;
    }
    let import = module.imports.iter().find(|import| import.name.as_deref() == Some(name));
    import.is_some_and(|import| leads_to(root, at, &import.path, name, path, 0))
}

/// Whether a written path names the type, directly or by further imports.
fn leads_to(
    root: &Module,
    at: &[String],
    written: &[String],
    name: &str,
    path: &[String],
    depth: usize,
) -> bool {
    let Some(target) = absolute(root, at, written) else { return false };
    let Some((last, inside)) = target.split_last() else { return false };
    if inside == path && last == name {
        return true;
    }
    let Some(module) = root.find(inside) else { return false };
    let mut imports = module.imports.iter().filter(|import| import.name.as_ref() == Some(last));
    depth < MAX_DEPTH && imports.any(|import| leads_to(root, inside, &import.path, name, path, depth + 1))
}

/// The path below the crate's root that a written path means; `None` if it leads to another crate.
fn absolute(root: &Module, from: &[String], written: &[String]) -> Option<Vec<String>> {
    let (first, rest) = written.split_first()?;
    let below = |start: &[String]| Some(start.iter().chain(rest).cloned().collect());
    match first.as_str() {
        "crate" => below(&[]),
        "self" => below(from),
        "super" => {
            let parent = from.get(..from.len().checked_sub(1)?)?;
            match rest.first().map(String::as_str) {
                Some("super") => absolute(root, parent, rest),
                _ => below(parent),
            }
        }
        name => {
            let here = root.find(from)?;
            let is_module = here.modules.iter().any(|module| module.name == name);
            let is_item = here.items.iter().any(|item| item_name(item).is_some_and(|found| found == name));
            (is_module || is_item).then(|| from.iter().chain(written).cloned().collect())
        }
    }
}

fn item_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(name.to_string())
}

fn public_name(item: &Item) -> Option<String> {
    let is_public = match item {
        Item::Const(item) => is_public_item(&item.vis),
        Item::Enum(item) => is_public_item(&item.vis),
        Item::Fn(item) => is_public_item(&item.vis),
        Item::Static(item) => is_public_item(&item.vis),
        Item::Struct(item) => is_public_item(&item.vis),
        Item::Trait(item) => is_public_item(&item.vis),
        Item::Type(item) => is_public_item(&item.vis),
        Item::Macro(item) => item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")),
        _ => false,
    };
    is_public.then(|| item_name(item)).flatten()
}

fn signature(signature: &syn::Signature) -> String {
    // Callers do not see whether a parameter is mutable inside.
    let plain = |input| text(input).trim_start_matches("mut ").to_owned();
    let inputs: Vec<String> = signature.inputs.iter().map(plain).collect();
    let is_async = if signature.asyncness.is_some() { " async" } else { "" };
    format!(
        "{}({}){}{is_async}",
        text(&signature.generics),
        inputs.join(", "),
        spaced(&text(&signature.output))
    )
}

fn spaced(output: &str) -> String {
    if output.is_empty() { String::new() } else { format!(" {output}") }
}

fn text_of_variant(variant: &syn::Variant) -> String {
    let mut bare = variant.clone();
    bare.attrs.clear();
    bare.fields.iter_mut().for_each(|field| field.attrs.clear());
    text(&bare)
}

/// Returns the tokens of an item, with the usual spaces.
fn text(item: &impl ToTokens) -> String {
    let tokens = item.to_token_stream().to_string();
    let pairs = [
        (" :: ", "::"),
        (":: ", "::"),
        (" < ", "<"),
        (" >", ">"),
        ("< ", "<"),
        (" ,", ","),
        ("& ", "&"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (" [", "["),
        (" :", ":"),
        (" ;", ";"),
        (" ?", "?"),
        ("->(", "-> ("),
        (",)", ")"),
    ];
    pairs.iter().fold(tokens, |text, (from, to)| text.replace(from, to)).replace("- >", "->")
}
