// Writes the data of a server whose directories have counted far.
//
// Arguments: DATA_DIRECTORY PATH=COUNTER=DATA...

import java.io.File;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.EphemeralType;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

public class Seed {
    public static void main(String[] arguments) throws Exception {
        DataTree tree = new DataTree();
        long transaction = 0;
        for (int at = 1; at < arguments.length; at++) {
            String[] words = arguments[at].split("=", 3);
            for (int end = words[0].indexOf('/', 1); ; end = words[0].indexOf('/', end + 1)) {
                String path = end < 0 ? words[0] : words[0].substring(0, end);
                if (tree.getNode(path) == null) {
                    tree.createNode(path, (end < 0 ? words[2] : "").getBytes(), ZooDefs.Ids.OPEN_ACL_UNSAFE,
                            EphemeralType.CONTAINER_EPHEMERAL_OWNER, -1, ++transaction, 0);
                }
                if (end < 0) {
                    break;
                }
            }
            tree.getNode(words[0]).stat.setCversion(Integer.parseInt(words[1]));
        }
        tree.lastProcessedZxid = transaction;
        File directory = new File(arguments[0]);
        new FileTxnSnapLog(directory, directory).save(tree, new ConcurrentHashMap<>(), false);
    }
}
