; Counts words of a made text with persistent maps and lazy sequences.
(defn text [n seed]
  (let [r (java.util.Random. seed)]
    (map (fn [_] (str "w" (.nextInt r 2000))) (range n))))

(defn line [[word n]] (str word " " n " " (clojure.string/reverse word)))

(defn pass [seed]
  (let [counts (reduce (fn [m w] (assoc m w (inc (get m w 0)))) {} (text 40000 seed))
        best (take 50 (sort-by (comp - val) counts))
        by-length (group-by (comp count key) counts)]
    (hash (str (clojure.string/join "\n" (map line best)) (into (sorted-map) (map (fn [[k v]] [k (count v)]) by-length))))))

(require 'clojure.string)
(println (reduce (fn [sum seed] (bit-xor (bit-and (* 31 sum) 0xffffff) (pass seed))) 0 (range (Long/parseLong (first *command-line-args*)))))
