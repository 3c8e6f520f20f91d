package guest;

import java.io.IOException;

/**
 * Calls a method that is too large to be inlined, however hot it is: 40 operations, of which each call needs only one. Inlined, nothing
 * but that operation is left.
 *
 * <p>See {@link Clocked} for its orders.
 */
final class Beyond {
    private static final int CALLS = 3;

    private Beyond() {}

    public static void main(String[] args) throws IOException {
        Clocked.obey(CALLS, Beyond::some);
    }

    static int some(int times) {
        int x = times;
        for (int i = 0; i < times; i++) {
            x = apply(3, x);
            x = apply(17, x);
            x = apply(30, x);
        }
        return x;
    }

    static int apply(int operation, int x) {
        switch (operation) {
            case 0: return x + 1021;
            case 1: return x * 1031;
            case 2: return x ^ 1033;
            case 3: return x - 1039;
            case 4: return x + 1049;
            case 5: return x * 1051;
            case 6: return x ^ 1061;
            case 7: return x - 1063;
            case 8: return x + 1069;
            case 9: return x * 1087;
            case 10: return x ^ 1091;
            case 11: return x - 1093;
            case 12: return x + 1097;
            case 13: return x * 1103;
            case 14: return x ^ 1109;
            case 15: return x - 1117;
            case 16: return x + 1123;
            case 17: return x * 1129;
            case 18: return x ^ 1151;
            case 19: return x - 1153;
            case 20: return x + 1163;
            case 21: return x * 1171;
            case 22: return x ^ 1181;
            case 23: return x - 1187;
            case 24: return x + 1193;
            case 25: return x * 1201;
            case 26: return x ^ 1213;
            case 27: return x - 1217;
            case 28: return x + 1223;
            case 29: return x * 1229;
            case 30: return x ^ 1231;
            case 31: return x - 1237;
            case 32: return x + 1249;
            case 33: return x * 1259;
            case 34: return x ^ 1277;
            case 35: return x - 1279;
            case 36: return x + 1283;
            case 37: return x * 1289;
            case 38: return x ^ 1291;
            case 39: return x - 1297;
            default: return ~x;
        }
    }
}
