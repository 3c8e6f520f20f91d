// Works with collections and traits of the standard library, without end.
use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;

trait Shape {
    fn area(&self, n: u64) -> u64;
}

struct Square;
struct Words(HashMap<String, u64>);

impl Shape for Square {
    #[inline(never)]
    fn area(&self, n: u64) -> u64 {
        (0..200).fold(n, |x, i| x.wrapping_mul(6364136223846793005).wrapping_add(i)) & 0xff
    }
}

impl Shape for Words {
    #[inline(never)]
    fn area(&self, n: u64) -> u64 {
        *self.0.get(&(n % 5000 * 7919).to_string()).unwrap_or(&0)
    }
}

#[inline(never)]
fn sum(shapes: &[Box<dyn Shape>], n: u64) -> u64 {
    shapes.iter().map(|s| s.area(n)).sum()
}

#[inline(never)]
fn order(n: u64) -> usize {
    let mut tree = BTreeMap::new();
    for i in 0..2000u64 {
        tree.insert((n + i) * 7919 % 65537, i.to_string());
    }
    tree.values().filter(|v| v.ends_with('7')).count()
}

fn main() {
    let words = (0..5000u64).map(|i| ((i * 7919).to_string(), i)).collect();
    let shapes: Vec<Box<dyn Shape>> = vec![Box::new(Square), Box::new(Words(words))];
    let mut n = 0;
    loop {
        black_box(sum(&shapes, n));
        if n % 1000 == 0 {
            black_box(order(n));
        }
        n += 1;
    }
}
