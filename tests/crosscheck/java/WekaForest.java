import java.util.Random;
import weka.classifiers.Evaluation;
import weka.classifiers.trees.RandomForest;
import weka.core.Attribute;
import weka.core.FastVector;
import weka.core.Instance;
import weka.core.Instances;

/** Weka learns a forest of decision trees from made data, and is tested on parts of it. */
final class WekaForest {
    private static final int ATTRIBUTES = 12;

    public static void main(String[] args) throws Exception {
        Instances data = data(Integer.parseInt(args[0]));
        RandomForest forest = new RandomForest();
        forest.setNumTrees(Integer.parseInt(args[1]));
        Evaluation evaluation = new Evaluation(data);
        evaluation.crossValidateModel(forest, data, 3, new Random(1));
        System.out.printf("%.4f%n", evaluation.pctCorrect());
    }

    private static Instances data(int size) {
        FastVector classes = new FastVector();
        classes.addElement("no");
        classes.addElement("yes");
        FastVector attributes = new FastVector();
        for (int i = 0; i < ATTRIBUTES; i++) {
            attributes.addElement(new Attribute("a" + i));
        }
        attributes.addElement(new Attribute("class", classes));
        Instances data = new Instances("made", attributes, size);
        data.setClassIndex(ATTRIBUTES);
        Random random = new Random(7);
        for (int n = 0; n < size; n++) {
            double[] values = new double[ATTRIBUTES + 1];
            double sum = 0;
            for (int i = 0; i < ATTRIBUTES; i++) {
                values[i] = random.nextGaussian();
                sum += i % 3 == 0 ? values[i] * values[(i + 1) % ATTRIBUTES] : 0;
            }
            values[ATTRIBUTES] = sum + random.nextGaussian() > 0 ? 1 : 0;
            data.add(new Instance(1, values));
        }
        return data;
    }
}
