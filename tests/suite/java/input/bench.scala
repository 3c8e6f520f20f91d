package bench

sealed trait Expr {
  def +(other: Expr): Expr = Add(this, other)
  def *(other: Expr): Expr = Mul(this, other)
}
case class Num(value: Int) extends Expr
case class Var(name: String) extends Expr
case class Add(left: Expr, right: Expr) extends Expr
case class Mul(left: Expr, right: Expr) extends Expr
case class Neg(operand: Expr) extends Expr

object Expr {
  def simplify(e: Expr): Expr = e match {
    case Add(Num(0), x)             => simplify(x)
    case Add(x, Num(0))             => simplify(x)
    case Mul(Num(1), x)             => simplify(x)
    case Mul(x, Num(1))             => simplify(x)
    case Mul(Num(0), _) | Mul(_, Num(0)) => Num(0)
    case Add(Num(a), Num(b))        => Num(a + b)
    case Mul(Num(a), Num(b))        => Num(a * b)
    case Add(a, b)                  => Add(simplify(a), simplify(b))
    case Mul(a, b)                  => Mul(simplify(a), simplify(b))
    case Neg(Neg(x))                => simplify(x)
    case x                          => x
  }

  def evaluate(e: Expr)(implicit environment: Map[String, Int]): Int = e match {
    case Num(value) => value
    case Var(name)  => environment.getOrElse(name, 0)
    case Add(a, b)  => evaluate(a) + evaluate(b)
    case Mul(a, b)  => evaluate(a) * evaluate(b)
    case Neg(a)     => -evaluate(a)
  }
}

trait Monoid[T] {
  def zero: T
  def plus(a: T, b: T): T
}

object Monoid {
  implicit object IntMonoid extends Monoid[Int] {
    def zero = 0
    def plus(a: Int, b: Int) = a + b
  }
  implicit object StringMonoid extends Monoid[String] {
    def zero = ""
    def plus(a: String, b: String) = a + b
  }
  implicit def listMonoid[T]: Monoid[List[T]] = new Monoid[List[T]] {
    def zero = Nil
    def plus(a: List[T], b: List[T]) = a ::: b
  }
  implicit def pairMonoid[A, B](implicit a: Monoid[A], b: Monoid[B]): Monoid[(A, B)] = new Monoid[(A, B)] {
    def zero = (a.zero, b.zero)
    def plus(x: (A, B), y: (A, B)) = (a.plus(x._1, y._1), b.plus(x._2, y._2))
  }
}

object Main {
  def fold[T](values: Seq[T])(implicit monoid: Monoid[T]): T = values.foldLeft(monoid.zero)(monoid.plus)

  def permutations[A](values: List[A]): Stream[List[A]] =
    if (values.isEmpty) Stream(Nil)
    else for (first <- values.toStream; rest <- permutations(values.filterNot(_ == first))) yield first :: rest

  def main(args: Array[String]): Unit = {
    println(fold(List(1, 2, 3)))
    println(fold(List(("a", List(1)), ("b", List(2)))))
    println(fold(for {
      i <- 1 to 10
      j <- i to 10
      if (i * j) % 2 == 0
      k = i + j
      if k > 3
    } yield (i, (j.toString, List(k)))))
    println((1 to 100).groupBy(_ % 7).mapValues(_.map(x => x * x).sum).toSeq.sortBy(-_._2))
    println(permutations(List(1, 2, 3, 4)).map(_.mkString(",")).take(5).toList)
    implicit val environment = Map("x" -> 3)
    println(Expr.evaluate(Expr.simplify(Var("x") * Num(1) + Num(0) + Neg(Neg(Num(4))))))
  }
}
