//! A task's graph as a picture: every step stands one column after the last of those it waits for. Pure.

use std::collections::BTreeMap;

use holdoff_work::{StepRecord, TaskRecord};

const BOX: (i32, i32) = (180, 44);
const GAP: (i32, i32) = (56, 16);
const MARGIN: i32 = 4;
/// More are not drawn; they stand in the table.
const MOST: usize = 150;

/// A graph, in points.
pub(super) struct Graph {
    pub(super) width: i32,
    pub(super) height: i32,
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<String>,
}

/// A step in it.
pub(super) struct Node {
    pub(super) x: i32,
    pub(super) y: i32,
    pub(super) number: i32,
    pub(super) name: String,
    pub(super) state: &'static str,
}

/// Draws the graph of a task that has more than one step.
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

/// How many steps come before each, at most, one after the other.
fn columns(task: &TaskRecord) -> BTreeMap<i32, i32> {
    let mut columns: BTreeMap<i32, i32> = task.steps.iter().map(|step| (step.id.number, 0)).collect();
    // A graph without circles is settled after as many rounds as it has steps; usually after a few.
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

/// A name that fits into a box.
fn name(step: &StepRecord) -> String {
    const LONGEST: usize = 22;
    let name = step.name.as_deref().unwrap_or(&step.operation);
    match name.char_indices().nth(LONGEST) {
        None => name.to_owned(),
        Some(_) => name.chars().take(LONGEST - 1).chain(['…']).collect(),
    }
}
