package bench

object Main {
  def main(args: Array[String]): Unit = println((1 to 100).groupBy(_ % 7).mapValues(_.map(x => x * x).sum).toSeq.sortBy(-_._2))
}
