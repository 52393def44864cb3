//! The graph of a task as a picture. Each step stands one column after the last of its dependencies. Pure.

use std::collections::BTreeMap;

use holdoff_work::{StepRecord, TaskRecord};

const BOX: (i32, i32) = (180, 44);
const GAP: (i32, i32) = (56, 16);
const MARGIN: i32 = 4;
/// The maximum number of steps in the picture. The table shows tasks with more.
const MOST: usize = 150;

/// A graph, in points.
pub(super) struct Graph {
    pub(super) width: i32,
    pub(super) height: i32,
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<String>,
}

/// A step in the graph.
pub(super) struct Node {
    pub(super) x: i32,
    pub(super) y: i32,
    pub(super) number: i32,
    pub(super) name: String,
    pub(super) state: &'static str,
}

/// Draws the graph of a task that has more than one step and at most [`MOST`].
pub(super) fn draw(task: &TaskRecord) -> Option<Graph> {
    if task.steps.len() < 2 || task.steps.len() > MOST {
        return None;
    }
    let columns = columns(task);
    let mut taken: BTreeMap<i32, i32> = BTreeMap::new();
    let mut nodes = Vec::new();
    let mut places = BTreeMap::new();
    for step in &task.steps {
        let column = columns.get(&step.id.number).copied().unwrap_or(0);
        let row = taken.entry(column).or_insert(0);
        let (x, y) = (MARGIN + column * (BOX.0 + GAP.0), MARGIN + *row * (BOX.1 + GAP.1));
        *row += 1;
        places.insert(step.id.number, (x, y));
        nodes.push(Node { x, y, number: step.id.number, name: name(step), state: step.state.name() });
    }
    let curve = |(from, to): &(i32, i32)| {
        let ((ax, ay), (bx, by)) = (places.get(from)?, places.get(to)?);
        let (ax, ay, bx, by) = (ax + BOX.0, ay + BOX.1 / 2, *bx, by + BOX.1 / 2);
        let bend = GAP.0 / 2;
        Some(format!("M{ax} {ay} C{} {ay} {} {by} {bx} {by}", ax + bend, bx - bend))
    };
    let edges = task.edges.iter().filter_map(curve).collect();
    let most = |ends: &mut dyn Iterator<Item = i32>| ends.max().unwrap_or(0) + MARGIN;
    let width = most(&mut nodes.iter().map(|node| node.x + BOX.0));
    let height = most(&mut nodes.iter().map(|node| node.y + BOX.1));
    Some(Graph { width, height, nodes, edges })
}

/// Returns the column of each step: the length of the longest chain of dependencies before it.
fn columns(task: &TaskRecord) -> BTreeMap<i32, i32> {
    let mut columns: BTreeMap<i32, i32> = task.steps.iter().map(|step| (step.id.number, 0)).collect();
    // In an acyclic graph the columns settle after at most as many rounds as there are steps; usually after a few.
    for _ in 0..task.steps.len() {
        let mut is_settled = true;
        for (from, to) in &task.edges {
            let least = columns.get(from).copied().unwrap_or(0) + 1;
            if let Some(column) = columns.get_mut(to).filter(|column| **column < least) {
                *column = least;
                is_settled = false;
            }
        }
        if is_settled {
            break;
        }
    }
    columns
}

/// Returns the name of a step, cut to the width of a box.
fn name(step: &StepRecord) -> String {
    const LONGEST: usize = 22;
    let name = step.name.as_deref().unwrap_or(&step.operation);
    match name.char_indices().nth(LONGEST) {
        None => name.to_owned(),
        Some(_) => name.chars().take(LONGEST - 1).chain(['…']).collect(),
    }
}
