//! The dependency graph of a task's steps: numbers in place of names, without cycles.

use std::collections::{BTreeMap, BTreeSet};

use super::{InvalidTask, Step};

/// The dependencies between steps, by number.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Graph {
    /// The edges from parent to child, each once.
    pub(crate) edges: Vec<(usize, usize)>,
    /// The number of parents of each step.
    pub(crate) parents: Vec<i32>,
    /// The number of children of each step.
    pub(crate) children: Vec<i32>,
}

/// Numbers the steps in their order, and refuses cycles.
pub(crate) fn graph(steps: &[Step]) -> Result<Graph, InvalidTask> {
    let names = numbers(steps)?;
    let mut parents = Vec::with_capacity(steps.len());
    for step in steps {
        let mut mine = BTreeSet::new();
        for parent in &step.after {
            let number = names.get(parent.as_str()).ok_or_else(|| InvalidTask::NoSuchParent {
                step: step.shown().to_owned(),
                parent: parent.clone(),
            })?;
            mine.insert(*number);
        }
        parents.push(mine);
    }
    if let Some(circle) = circle(&parents) {
        let name = |number: &usize| steps.get(*number).map_or("?", Step::shown);
        let path: Vec<_> = circle.iter().map(name).collect();
        return Err(InvalidTask::Cycle { path: path.join(" → ") });
    }
    Ok(count(&parents))
}

fn numbers(steps: &[Step]) -> Result<BTreeMap<&str, usize>, InvalidTask> {
    let mut names = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        let Some(name) = step.name.as_deref() else { continue };
        if names.insert(name, number).is_some() {
            return Err(InvalidTask::SameName { name: name.to_owned() });
        }
    }
    Ok(names)
}

fn count(parents: &[BTreeSet<usize>]) -> Graph {
    let mut graph = Graph { children: vec![0; parents.len()], ..Graph::default() };
    for (child, mine) in parents.iter().enumerate() {
        graph.parents.push(i32::try_from(mine.len()).unwrap_or(i32::MAX));
        for parent in mine {
            graph.edges.push((*parent, child));
            if let Some(children) = graph.children.get_mut(*parent) {
                *children += 1;
            }
        }
    }
    graph
}

/// Returns a cycle, from its first step back to itself, if there is one.
///
/// Removes the steps whose parents are all removed, until none is left to remove. Every remaining step has a
/// remaining parent, so a walk from parent to parent must return to a step that it has visited.
fn circle(parents: &[BTreeSet<usize>]) -> Option<Vec<usize>> {
    let mut waiting: Vec<usize> = parents.iter().map(BTreeSet::len).collect();
    let mut children = vec![Vec::new(); parents.len()];
    for (child, mine) in parents.iter().enumerate() {
        for parent in mine {
            children.get_mut(*parent)?.push(child);
        }
    }
    let mut free: Vec<usize> = (0..parents.len()).filter(|step| waiting.get(*step) == Some(&0)).collect();
    let mut left: BTreeSet<usize> = (0..parents.len()).collect();
    while let Some(step) = free.pop() {
        left.remove(&step);
        for child in children.get(step)? {
            let waits = waiting.get_mut(*child)?;
            *waits -= 1;
            if *waits == 0 {
                free.push(*child);
            }
        }
    }
    let mut path = vec![*left.first()?];
    loop {
        let here = *path.last()?;
        let next = *parents.get(here)?.iter().find(|parent| left.contains(parent))?;
        if let Some(start) = path.iter().position(|step| *step == next) {
            path.push(next);
            path.drain(..start);
            // The walk goes from child to parent; the message shows the path from parent to child.
            path.reverse();
            return Some(path);
        }
        path.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, after: &[&str]) -> Step {
        let mut step = Step::new("op");
        step.name = Some(name.to_owned());
        step.after = after.iter().map(|parent| (*parent).to_owned()).collect();
        step
    }

    #[test]
    fn a_diamond_is_counted() {
        let steps = [step("d", &["b", "c", "b"]), step("b", &["a"]), step("c", &["a"]), step("a", &[])];
        let graph = graph(&steps).unwrap();
        assert_eq!(graph.parents, [2, 1, 1, 0]);
        assert_eq!(graph.children, [0, 1, 1, 2]);
        assert_eq!(graph.edges.len(), 4);
    }

    #[test]
    fn a_circle_is_refused_by_its_path() {
        let steps = [step("a", &["c"]), step("b", &["a"]), step("c", &["b"]), step("d", &["c"])];
        assert_eq!(graph(&steps), Err(InvalidTask::Cycle { path: "a → b → c → a".to_owned() }));
        let itself = [step("a", &["a"])];
        assert_eq!(graph(&itself), Err(InvalidTask::Cycle { path: "a → a".to_owned() }));
    }

    #[test]
    fn unknown_parents_and_names_given_twice_are_refused() {
        let missing = [step("a", &["x"])];
        assert!(matches!(graph(&missing), Err(InvalidTask::NoSuchParent { .. })));
        let twice = [step("a", &[]), step("a", &[])];
        assert!(matches!(graph(&twice), Err(InvalidTask::SameName { .. })));
    }
}
